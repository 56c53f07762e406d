# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Write with a pen
#
# A layer-normalised network learns pen strokes that write a given text, as in section
# 6.5 of the paper. We train the small embedded version, which needs no download, and
# let it write.

# %%
# Configs and experiments are read from the checkout that this notebook is in.
# %cd -q ../..
# %pip install -q -e '.[train]'

# %% [markdown]
# ## Train
#
# About two minutes on two idle cores. After an interruption, run the cell again, and
# it goes on. `configs/handwriting.py:paper` is the paper's network on IAM-OnDB.

# %%
import subprocess
import sys

CONFIG = "configs/handwriting.py"
RUN = "runs/notebook-handwriting"
command = [sys.executable, "-m", "lnrepro.main", f"--config={CONFIG}"]
subprocess.run([*command, f"--workdir={RUN}"], check=True)

# %% [markdown]
# ## The curve

# %%
import matplotlib.pyplot as plt

import lnrepro

run = lnrepro.load(RUN)
points = [record for record in run.metrics if "valid/nll" in record]
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.plot(
    [record["step"] for record in points],
    [record["valid/nll"] for record in points],
    marker="o",
)
ax.set(xlabel="step", ylabel="validation NLL, nats per line")
plt.show()

# %% [markdown]
# ## Write
#
# A larger bias gives neater lines; 0 samples from the learned density itself.

# %%
TEXTS = ("layer norm", "hello pen")
fig, axes = plt.subplots(2, 2, figsize=(9, 3), layout="constrained")
for row, bias in zip(axes, (0.0, 1.0), strict=True):
    for ax, text in zip(row, TEXTS, strict=True):
        for stroke in run.write(text, seed=1, bias=bias):
            # In the data, y points downwards.
            ax.plot(stroke[:, 0], -stroke[:, 1], color="black", linewidth=1)
        ax.set_title(f"{text!r}, bias {bias:g}", fontsize=9)
        ax.set_aspect("equal")
        ax.axis("off")
plt.show()
