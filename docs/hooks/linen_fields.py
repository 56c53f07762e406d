"""Extension of griffe: modules of flax.linen are dataclasses without a decorator."""

import griffe


class LinenFields(griffe.Extension):
    """Show the fields of linen modules, with their defaults, as arguments."""

    def on_class_instance(self, *, cls, **kwargs):
        """Mark a module as a dataclass, which griffe knows."""
        if cls.path.startswith("lnrepro.linen."):
            name = griffe.ExprName("dataclasses.dataclass")
            cls.decorators.append(griffe.Decorator(name, lineno=None, endlineno=None))
