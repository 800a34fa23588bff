"""scikit-learn: models over `data` bytes: trees on two threads, boosting, clusters, a linear model.

The order of additions is fixed (OMP_NUM_THREADS=1, one thread for each tree), so that all runs give the same bits.
"""

import hashlib
import sys

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler


def note(name, values):
    print(name, hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16], flush=True)


def main():
    columns = 24
    rows = int(sys.argv[1]) // 6 // (8 * columns)
    rng = np.random.default_rng(13)
    x = rng.integers(0, 1000, (rows, columns)).astype(np.float64)
    y = ((x[:, 0] + x[:, 1] > 900) ^ (x[:, 2] > 700)).astype(np.int32)
    scaled = StandardScaler().fit_transform(x)
    note("scaled", scaled)
    clusters = MiniBatchKMeans(8, random_state=0, n_init=1, max_iter=20, batch_size=4096).fit(scaled)
    note("clusters", clusters.labels_)
    linear = SGDClassifier(random_state=0, max_iter=4, tol=None).fit(scaled, y)
    note("linear", linear.predict(scaled))
    forest = ExtraTreesClassifier(8, max_depth=12, random_state=0, n_jobs=2).fit(x, y)
    note("forest", forest.apply(x[: rows // 4]))
    boosted = HistGradientBoostingClassifier(max_iter=15, random_state=0, early_stopping=False).fit(x, y)
    note("boosted", boosted.predict(x))


main()
