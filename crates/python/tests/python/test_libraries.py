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


def test_a_dataset_gathers_the_rows_of_a_batch(pool):
    torch = pytest.importorskip("torch")
    from deepram.torch import Dataset, tensor

    features = pool.array(np.arange(4000.0).reshape(1000, 4), name="features")
    targets = pool.array(np.arange(1000), name="targets")
    loader = torch.utils.data.DataLoader(Dataset(features, targets), batch_size=100, shuffle=True)
    seen = []
    for x, y in loader:
        assert x.shape == (100, 4) and torch.equal(x[:, 0], y * 4.0)
        seen += y.tolist()
    assert sorted(seen) == list(range(1000))
    assert Dataset(targets)[5] == 5 and len(Dataset(targets)) == 1000
    assert Dataset(features, targets, transform=lambda x, y: x.sum() + y)[0] == 6
    assert tensor(features).data_ptr() == features.ctypes.data
    with pytest.raises(ValueError, match="same length"):
        Dataset(features, targets[:5])


def test_a_checkpoint_writes_what_changed_and_resumes_with_the_same_losses(path):
    torch = pytest.importorskip("torch")
    from deepram.torch import Checkpoint

    def make():
        torch.manual_seed(4)
        model = torch.nn.Sequential(torch.nn.Embedding(10_000, 64), torch.nn.Linear(64, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.0)
        return model, optimizer

    def train(model, optimizer, first, last):
        losses = []
        for step in range(first, last):
            rows = torch.arange(step * 10, step * 10 + 10)
            loss = ((model(rows) - 1) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    model, optimizer = make()
    with deepram.Pool(path, size="64MiB", dram="32MiB") as pool:
        checkpoint = Checkpoint(pool, model=model, optimizer=optimizer)
        assert not checkpoint.exists
        with pytest.raises(KeyError):
            checkpoint.load()
        train(model, optimizer, 0, 5)
        checkpoint.save(step=5, note=["a", None, 2.5])
        train(model, optimizer, 5, 6)
        before = pool.stats()["bytes_user"]
        token = checkpoint.save(step=6)
        # Ten rows of the embedding and a few small arrays, of 2.5 MB.
        assert pool.stats()["bytes_user"] - before < 200_000
        wanted = train(model, optimizer, 6, 10)
        pool.rollback(token)
        assert checkpoint.load() == {"step": 6}
        assert train(model, optimizer, 6, 10) == wanted
        pool.abandon()
    model, optimizer = make()
    with deepram.Pool(path, dram="32MiB") as pool:
        checkpoint = Checkpoint(pool, model=model, optimizer=optimizer)
        assert checkpoint.load()["step"] == 6
        assert train(model, optimizer, 6, 10) == wanted
        with pytest.raises(KeyError, match="has: model, optimizer"):
            Checkpoint(pool, other=model).load()
        with pytest.raises(TypeError, match="no state_dict"):
            Checkpoint(pool, other=5)
        with pytest.raises(TypeError, match="cannot be kept"):
            checkpoint.save(bad=object())


def test_a_checkpoint_is_whole_whatever_has_changed_its_arrays_since_the_last(path):
    torch = pytest.importorskip("torch")
    from deepram.torch import Checkpoint

    table = torch.nn.Embedding(4_000, 1024)
    with deepram.Pool(path, size="64MiB", dram="8MiB") as pool:
        checkpoint = Checkpoint(pool, table=table)

        def save(most):
            before = pool.stats()["bytes_user"]
            token = checkpoint.save()
            assert pool.stats()["bytes_user"] - before <= most
            restored = torch.nn.Embedding(4_000, 1024)
            Checkpoint(pool, table=restored).load()
            assert torch.equal(table.weight, restored.weight)
            return token

        first = save(17 << 20)
        # Nothing has changed, and nothing is read: the DRAM has half of the array.
        reads = pool.stats()["bytes_read"]
        checkpoint.save()
        assert pool.stats()["bytes_read"] - reads < 1 << 20
        with torch.no_grad():
            table.weight[1000:1010] += 1
        save(20 * 4096)
        pool["checkpoint/table/weight"][:4096] = 0
        save(20 * 4096)
        with torch.no_grad():
            table.weight[2000:2010] += 1
        save(20 * 4096)
        pool.rollback(first)
        save(30 * 4096)
        del pool["checkpoint/table/weight"]
        save(17 << 20)


def test_adam_and_half_precision_come_back(pool):
    torch = pytest.importorskip("torch")
    from deepram.torch import Checkpoint

    def make():
        model = torch.nn.Linear(300, 40).to(torch.bfloat16)
        return model, torch.optim.AdamW(model.parameters())

    model, optimizer = make()
    model(torch.ones(300, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    Checkpoint(pool, model=model, optimizer=optimizer).save()
    other, restored = make()
    Checkpoint(pool, model=other, optimizer=restored).load()
    assert torch.equal(model.weight, other.weight)
    first, second = (list(o.state.values())[0] for o in (optimizer, restored))
    assert torch.equal(first["exp_avg"], second["exp_avg"]) and first["step"] == second["step"]
