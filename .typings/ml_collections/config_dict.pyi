from typing import Any

from . import ConfigDict as ConfigDict

def placeholder(field_type: type, required: bool = ...) -> Any: ...
