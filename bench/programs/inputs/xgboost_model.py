"""XGBoost: histogram trees over `data` bytes, on two threads, then predictions of all rows."""

import hashlib
import sys

import numpy as np
import xgboost


def main():
    columns = 32
    rows = int(sys.argv[1]) // 5 // (4 * columns)
    rng = np.random.default_rng(14)
    x = rng.integers(0, 4000, (rows, columns)).astype(np.float32)
    y = (x[:, 0] > 2000).astype(np.float32) + (x[:, 1] > x[:, 2])
    matrix = xgboost.DMatrix(x, label=y, nthread=2)
    options = {"tree_method": "hist", "max_depth": 7, "nthread": 2, "seed": 0, "eta": 0.3, "subsample": 0.8}
    model = xgboost.train(options, matrix, 12)
    said = model.predict(matrix)
    print("trees", model.num_boosted_rounds(), hashlib.sha256("".join(model.get_dump()).encode()).hexdigest()[:16])
    print("predicted", hashlib.sha256(np.round(said, 2).tobytes()).hexdigest()[:16])


main()
