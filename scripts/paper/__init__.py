"""The paper's figures and tables, made from run directories by scripts/figures.py."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
