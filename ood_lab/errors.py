"""The one error class whose message is meant for the person at the keyboard."""


class UserError(Exception):
    """Something the user gave cannot work; the message names the culprit and the remedy.

    Entry points print the message as one line, without a traceback, and exit with status 1.
    Programming errors must not use it: they keep their traceback.
    """
