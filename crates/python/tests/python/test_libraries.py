"""Libraries over arrays of a pool; each test is skipped where its library is not installed."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import deepram


def test_pandas_uses_the_memory_of_a_pool(pool):
    pandas = pytest.importorskip("pandas")
    array = pool.array(np.arange(3000.0).reshape(1000, 3), name="x")
    frame = pandas.DataFrame(array, columns=["a", "b", "c"], copy=False)
    assert np.shares_memory(frame.to_numpy(), array)
    assert frame["b"].sum() == array[:, 1].sum()
    assert frame.groupby(frame["a"] > 1000)["c"].mean().shape == (2,)


def test_arrow_uses_the_memory_of_a_pool(pool):
    pyarrow = pytest.importorskip("pyarrow")
    array = pool.array(np.arange(1000, dtype="int64"), name="x")
    column = pyarrow.array(array)
    assert column.buffers()[1].address == array.ctypes.data
    assert pyarrow.compute.sum(column).as_py() == 499_500 if hasattr(pyarrow, "compute") else True
    del array
    assert column[5].as_py() == 5


def test_dask_computes_on_a_pool(pool):
    dask_array = pytest.importorskip("dask.array")
    array = pool.array(np.random.default_rng(1).random((2000, 300)), name="x")
    lazy = dask_array.from_array(array, chunks=(500, 300))
    assert np.allclose(lazy.mean(axis=0).compute(scheduler="threads"), array.mean(axis=0))
    target = pool.zeros(array.shape, name="y")
    dask_array.store(lazy * 2, target, scheduler="threads")
    assert np.allclose(target, array * 2)


def test_scikit_learn_learns_from_a_pool(pool):
    linear_model = pytest.importorskip("sklearn.linear_model")
    random = np.random.default_rng(2)
    x = pool.array(random.random((2000, 5)), name="features")
    y = pool.array(np.asarray(x) @ np.arange(5.0), name="target")
    model = linear_model.LinearRegression().fit(x, y)
    assert np.allclose(model.coef_, np.arange(5.0))
    parts = linear_model.SGDRegressor(random_state=0)
    for start in range(0, 2000, 500):
        parts.partial_fit(deepram.gather(x, range(start, start + 500)), y[start : start + 500])
    assert parts.coef_.shape == (5,)


def test_joblib_sends_references_to_threads(pool):
    joblib = pytest.importorskip("joblib")
    array = pool.array(np.arange(10_000), name="x")
    sums = joblib.Parallel(n_jobs=2, backend="threading")(
        joblib.delayed(np.sum)(array[at : at + 1000]) for at in range(0, 10_000, 1000)
    )
    assert sum(sums) == np.arange(10_000).sum()
    assert len(pickle.dumps(array)) < 1000


def test_torch_trains_from_a_pool_and_checkpoints_into_it(path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    with deepram.Pool(path, size="64MiB", dram="32MiB") as pool:
        array = pool.array(np.random.default_rng(3).random((4096, 16), dtype="float32"), name="x")
        tensor = torch.from_numpy(np.asarray(array))
        assert tensor.data_ptr() == array.ctypes.data
        model = torch.nn.Linear(16, 4)
        for name, parameter in model.named_parameters():
            home = pool.array(parameter.detach().numpy(), name=f"model.{name}")
            parameter.data = torch.from_numpy(np.asarray(home))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for step in range(6):
            if step == 3:
                token = pool.sync()
            batch = torch.from_numpy(deepram.gather(array, np.arange(step * 64, step * 64 + 64)))
            loss = (model(batch) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        pool.rollback(token)
        again = []
        for step in range(3, 6):
            batch = torch.from_numpy(deepram.gather(array, np.arange(step * 64, step * 64 + 64)))
            loss = (model(batch) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            again.append(loss.item())
        assert again == losses[3:]
        del tensor, model, optimizer, parameter, home
