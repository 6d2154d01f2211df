"""Generated parts of a Markdown page: the text between `<!-- NAME -->` and `<!-- /NAME -->`."""

import re
from collections.abc import Mapping


def fill(page: str, sections: Mapping[str, str]) -> str:
    """The page with the text of each section replaced. Raises ValueError unless each stands there once."""
    for name, content in sections.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        page, found = re.subn(pattern, lambda match, new=content: f"{match[1]}{new}\n{match[2]}", page, flags=re.DOTALL)
        if found != 1:
            raise ValueError(f"the page has {found} sections {name!r}; expected one")
    return page
