"""The paper's figures and tables, made from run directories by scripts/figures.py."""
