"""The `thresher` command: each verb is one short function; the work is done by the stages they call."""


def main() -> None:
    """Run the command line; what a user can mend ends with one message and exit code 2."""
    from thresher.cli.app import app

    app()
