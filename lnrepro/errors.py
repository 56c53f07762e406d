"""What a run tells its user when it cannot go on: one line, an exit code, no traceback."""


class UserError(Exception):
    """A mistake the user can mend. The message is the line shown: what is wrong, where, and what to do."""

    exit_code = 2


class DataError(UserError):
    """A file or data set that is missing, damaged or not what it claims to be; names the file, and the line if there is one."""


class RunError(UserError):
    """A run that started well and failed: a non-finite loss, a full disk. What was saved before stays."""

    exit_code = 1
