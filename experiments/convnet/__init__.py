"""Convolutional networks (section 6.7).

The paper gives a remark, but no network, data or number: "layer normalization offers a
speedup over the baseline model without normalization, but batch normalization
outperforms the other methods". Its explanation is that units whose receptive fields lie
near the border of the image "are rarely turned on and thus have very different
statistics from the rest". This experiment is our own demonstration. Its evaluation
"border" measures the explanation on the test images. Run with configs/convnet.py.
"""

from experiments.classification import sizes as sizes
from experiments.fields.convnet import FIELDS as FIELDS

from .experiment import make as make
