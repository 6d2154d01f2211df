"""What the name of a column says about its numbers: whether they are codes (identifiers), quantities or times."""

import re

ROW_ID_NAMES = ("id", "index", "row", "row_id", "rowid", "row_number", "uuid", "")
LABEL_NAMES = (
    "label", "click", "clicked", "is_click", "is_clicked", "target", "y", "class", "conversion", "converted",
)  # fmt: skip
_CODE_WORDS = {
    "id", "ids", "code", "codes", "hash", "key", "type", "category", "ip", "phone", "telephone", "mobile", "fax",
    "zip", "postcode", "plz", "isbn", "issn", "ean", "upc", "gtin", "sku", "ssn", "imei", "iban", "vin", "fips",
}  # fmt: skip
"""A column whose name ends in such a word holds codes, even if they are written as fractions."""
_CODE_ENDINGS = ("id", "ids", "code", "zip", "type", "category", "hash", "phone")  # without a break: `userid`
_TIME_WORDS = {"timestamp", "time", "ts", "date", "datetime", "at", "unix", "epoch", "when", "seconds", "ms"}
"""A column whose name ends in such a word may hold times."""
_NO_CODES = {"bid", "bids", "paid", "unpaid", "prepaid", "aid", "kid", "kids", "grid", "mid", "fluid", "humid"}
_THINGS = {
    "user", "customer", "member", "visitor", "buyer", "seller", "merchant", "account", "author", "artist",
    "item", "product", "brand", "movie", "song", "track", "album", "book", "article", "post", "video", "game",
    "ad", "advert", "creative", "campaign", "advertiser", "publisher", "banner", "keyword", "query",
    "site", "domain", "host", "page", "url", "app", "channel", "device", "browser", "session", "cookie",
    "store", "shop", "hotel", "restaurant", "venue", "city", "region", "country", "county", "district",
    "flight", "airline", "carrier", "airport", "route", "station", "vehicle", "driver", "plate", "seat", "gate",
    "company", "employer", "employee", "vendor", "supplier", "patient", "student", "agent", "branch",
}  # fmt: skip
"""An integer column whose name ends in such a word (`user`, `targetItem`, not `user_visits`) holds codes,"""
_QUANTITY_WORDS = {"per", "on", "by", "in", "of", "count", "total", "max", "min", "mean", "avg", "average", "sum"}
"""except if the name contains one of these: `visits_per_user`, `time_on_page`."""
_NUMBER_WORDS = {"number", "num", "no", "nr", "nbr"}
"""At the end of a name it numbers a thing (`flight_number`); at the start it counts things (`num_clicks`)."""


def names_codes(name: str, *, integers: bool) -> bool:
    """Whether a column of this name holds codes; `integers`: whether all its values are integers.

    >>> names = ["userId", "isbn13", "flight_number", "num_flights", "amount_paid"]
    >>> [name for name in names if names_codes(name, integers=True)]
    ['userId', 'isbn13', 'flight_number']
    """
    words = _words(name)
    if not words or words[-1] in _NO_CODES:
        return False
    *before, last = words
    if last in _CODE_WORDS or last.endswith(_CODE_ENDINGS):
        return True
    if not integers or _QUANTITY_WORDS & set(words) or (before and before[0] in _NUMBER_WORDS):
        return False
    return last in _THINGS or bool(before and last in _NUMBER_WORDS) or (last != "number" and last.endswith("number"))


def names_time(name: str) -> bool:
    """Whether a column of this name may hold times.

    >>> [name for name in ["timestamp", "createdAt", "event_ts", "format"] if names_time(name)]
    ['timestamp', 'createdAt', 'event_ts']
    """
    return bool(_TIME_WORDS.intersection(_words(name)[-1:]))


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)]
