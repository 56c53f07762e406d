"""The numbers that the paper prints, and the data they were measured on."""

from lnrepro import data

# Table 2, with the metric and the title of each column. Mean over 5 folds of 1,000
# images. None where the paper prints none.
TABLE_2_DATA = "MS-COCO, VGG-19"
TABLE_2_COLUMNS = {
    "final/caption_r1": "caption R@1",
    "final/caption_r5": "caption R@5",
    "final/caption_r10": "caption R@10",
    "final/caption_mean_rank": "caption mean r",
    "final/image_r1": "image R@1",
    "final/image_r5": "image R@5",
    "final/image_r10": "image R@10",
    "final/image_mean_rank": "image mean r",
}
TABLE_2 = {
    "Sym (Vendrov et al.)": (45.4, None, 88.7, 5.8, 36.3, None, 85.8, 9.0),
    "OE (Vendrov et al.)": (46.7, None, 88.9, 5.7, 37.9, None, 85.9, 8.1),
    "OE (the paper's)": (46.6, 79.3, 89.1, 5.2, 37.8, 73.6, 85.7, 7.9),
    "OE + LN (the paper's)": (48.5, 80.6, 89.8, 5.1, 38.9, 74.3, 86.3, 7.6),
}

# Section 6.4: bounds in nats after 200 epochs.
BOUNDS = {"no norm": 82.36, "layer norm": 82.09}

# Table 3, with the metric and the title of each column.
TABLE_3_DATA = "BookCorpus, 2400-d, 1M steps"
TABLE_3_COLUMNS = {
    "sick/pearson": "SICK r",
    "sick/spearman": "SICK rho",
    "sick/mse": "SICK MSE",
    "mr/accuracy": "MR",
    "cr/accuracy": "CR",
    "subj/accuracy": "SUBJ",
    "mpqa/accuracy": "MPQA",
}
TABLE_3 = {
    "original (Kiros et al. 2015)": (0.848, 0.778, 0.287, 75.5, 79.3, 92.1, 86.9),
    "the paper's": (0.842, 0.767, 0.298, 77.3, 81.8, 92.6, 87.9),
    "the paper's + LN": (0.854, 0.785, 0.277, 79.5, 82.6, 93.4, 89.0),
    "the paper's + LN, 1.7M": (0.858, 0.788, 0.270, 79.4, 83.1, 93.7, 89.3),
}

# Fingerprints of official data sets, where their readers know them. A run on other data
# of the same name does not compare with the paper. Sets that are not listed are
# identified by their name, which only files that are proved to be official get.
_READERS = {name: data.reader_of(name) for name in data.TABLE}
FINGERPRINTS = {
    name: f"{name}/{reader.version}/{reader.sha256}"
    for name, reader in _READERS.items()
    if reader.sha256
}

# Data sets whose numbers can be compared with the paper's.
COMPARABLE_DATA = {"coco_captions": "MS-COCO, VGG-19", "bookcorpus": "BookCorpus"}
