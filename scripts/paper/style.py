"""How all figures look: size, letters, and a colour and line style for each norm."""

# Pages show pictures 690 pixels wide, so that 8 points are 11 pixels there.
WIDTH = 6.9
HEIGHT_OF_PANEL = 2.2
STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 8,
    "font.size": 8,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "savefig.dpi": 200,
    # The same figure gives the same file.
    "svg.hashsalt": "lnrepro",
}
# The colours of Okabe and Ito, which colour-blind readers tell apart. Norms that no
# figure shows together may look the same.
LOOKS = {
    "none": ("#000000", "--"),
    "layer": ("#d55e00", "-"),
    "layer_cell": ("#d55e00", "-"),
    "batch": ("#0072b2", "-."),
    "batch_everywhere": ("#56b4e9", (0, (5, 1, 1, 1, 1, 1))),
    "weight": ("#009e73", (0, (3, 1))),
    "layer_everywhere": ("#e69f00", (0, (6, 2))),
    "rms": ("#cc79a7", (0, (3, 1))),
}
