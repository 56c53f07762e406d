"""Recurrent cells: the paper's with every norm, and those of world models."""
