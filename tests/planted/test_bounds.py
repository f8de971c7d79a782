"""Accesses outside of the tensors. Each test is a fault and its right twin, and compares the result as an author would."""

import bounds
import torch
from planted import planted
from triton.tools.tensor_descriptor import TensorDescriptor

N, BLOCK = 1000, 128


def vectors(n=N, m=N):
    return torch.randn(n, device="cuda"), torch.zeros(m, device="cuda")


def copied(read="", write=""):
    x, out = vectors()
    bounds.copy[(8,)](x, out, N, BLOCK, read, write)
    torch.testing.assert_close(out, x)


@planted("out-of-bounds", "x", "a load without a mask")
def test_load_without_mask(fault):
    copied(read="no mask" if fault else "")


@planted("out-of-bounds", "out", "a store without a mask")
def test_store_without_mask(fault):
    copied(write="no mask" if fault else "")


@planted("out-of-bounds", "x", "`<=` for `<` in the mask of a load")
def test_load_one_too_many(fault):
    copied(read="one too many" if fault else "")


@planted("out-of-bounds", "out", "`<=` for `<` in the mask of a store")
def test_store_one_too_many(fault):
    copied(write="one too many" if fault else "")


@planted("out-of-bounds", "x", "an index of -1 in the first lane")
def test_load_one_too_early(fault):
    x, out = vectors()
    bounds.copy[(8,)](x, out, N, BLOCK, "one too early" if fault else "", "")
    if not fault:
        torch.testing.assert_close(out, x)


@planted("out-of-bounds", "x", "programs that are two blocks apart")
def test_programs_too_far_apart(fault):
    x, out = vectors(1024, 1024)
    bounds.far_apart[(8,)](x, out, 1024, BLOCK, fault)
    torch.testing.assert_close(out, x)


@planted("out-of-bounds", "x", "a row stride that is one too large, in a load")
def test_read_stride(fault):
    x, out = torch.randn(8, 100, device="cuda"), torch.zeros(8, 100, device="cuda")
    bounds.rows[(8,)](x, out, 100, 101 if fault else 100, 100, BLOCK)
    torch.testing.assert_close(out, x)


@planted("out-of-bounds", "out", "a row stride that is one too large, in a store")
def test_write_stride(fault):
    x, out = torch.randn(8, 100, device="cuda"), torch.zeros(8, 100, device="cuda")
    bounds.rows[(8,)](x, out, 100, 100, 101 if fault else 100, BLOCK)
    torch.testing.assert_close(out, x)


@planted("out-of-bounds", "x", "the stride of another tensor, which is wider")
def test_stride_of_another(fault):
    x, out = torch.randn(8, 100, device="cuda"), torch.zeros(8, 128, device="cuda")
    bounds.rows[(8,)](x, out, 100, out.stride(0) if fault else x.stride(0), 128, BLOCK)
    torch.testing.assert_close(out[:, :100], x)


def tiled(fault, transposed=False, swapped=False):
    x, out = torch.randn(60, 20, device="cuda"), torch.zeros(60, 20, device="cuda")
    if transposed:
        x = x.t().contiguous().t()
    strides = x.stride()[::-1] if swapped else x.stride()
    bounds.tile[(1,)](x, out, 60, 20, *strides, 64, 32, fault)
    torch.testing.assert_close(out, x)


@planted("out-of-bounds", "x", "a mask for rows, none for columns")
def test_rows_only(fault):
    tiled("rows only" if fault else "")


@planted("out-of-bounds", "x", "a mask with M and N mixed up")
def test_mixed_up_mask(fault):
    x, out = torch.randn(20, 60, device="cuda"), torch.zeros(20, 60, device="cuda")
    bounds.tile[(1,)](x, out, 20, 60, 60, 1, 64, 64, "mixed up" if fault else "")
    torch.testing.assert_close(out, x)


@planted(None, None, "the two strides of a matrix mixed up, which stays in bounds")
def test_swapped_strides(fault):
    tiled("", swapped=fault)


@planted("out-of-bounds", "x", "contiguous strides for a transposed view of a padded buffer")
def test_view_taken_for_contiguous(fault):
    x = torch.randn(20, 60, device="cuda")[:, ::3]
    out = torch.zeros(20, 20, device="cuda")
    bounds.tile[(1,)](x, out, 20, 20, 60, 4 if fault else 3, 32, 32, "")
    torch.testing.assert_close(out, x)


def indices():
    index = torch.arange(100, device="cuda") % 50
    index[7] = 50
    return index


@planted("out-of-bounds", "x", "a gather by an index that is one too large")
def test_gather(fault):
    x, out = vectors(50, 100)
    bounds.gather[(1,)](x, indices(), out, 100, 50, BLOCK, fault)
    expected = x[indices().clamp(max=49)]
    expected[7] = 0
    torch.testing.assert_close(out, expected)


@planted("out-of-bounds", "out", "a scatter to an index that is one too large")
def test_scatter(fault):
    x, out = torch.ones(100, device="cuda"), torch.zeros(50, device="cuda")
    bounds.scatter[(1,)](x, indices(), out, 100, 50, BLOCK, fault, False)
    torch.testing.assert_close(out, torch.ones_like(out))


@planted("out-of-bounds", "out", "an atomic at an index that is one too large")
def test_atomic_scatter(fault):
    x, out = torch.ones(100, device="cuda"), torch.zeros(50, device="cuda")
    bounds.scatter[(1,)](x, indices(), out, 100, 50, BLOCK, fault, True)
    assert out.sum() == 99


@planted("out-of-bounds", "x", "a loop that runs one block too far")
def test_one_block_too_far(fault):
    x, out = vectors(1024, 1)
    bounds.total[(1,)](x, out, 1024, BLOCK, fault)
    torch.testing.assert_close(out[0], x.sum())


@planted("out-of-bounds", "x", "a pointer cast to a wider type, with the old number of elements")
def test_wider_type(fault):
    x, out = torch.arange(128, dtype=torch.int32, device="cuda"), torch.zeros(128, dtype=torch.int64, device="cuda")
    bounds.wide[(1,)](x, out, 128, fault)
    torch.testing.assert_close(out[:64], x.view(torch.int64))


@planted("out-of-bounds", "x", "an offset that leads from one tensor into another")
def test_into_another_tensor(fault):
    x, y, out = torch.randn(128, device="cuda"), torch.randn(128, device="cuda"), torch.zeros(128, device="cuda")
    offset = (y.data_ptr() - x.data_ptr()) // 4
    bounds.into_another[(1,)](x, out, offset if fault else 0, BLOCK)
    torch.testing.assert_close(out, y if fault else x)


@planted(None, None, "an index beyond a view, in the storage of the same tensor")
def test_beyond_a_view(fault):
    buffer, out = torch.randn(256, device="cuda"), torch.zeros(128, device="cuda")
    bounds.into_another[(1,)](buffer[:128], out, 64 if fault else 0, BLOCK)
    torch.testing.assert_close(out, buffer[:128])


@planted("out-of-bounds", None, "a pointer chosen from two tensors, without a mask")
def test_pointer_from_a_condition(fault):
    x, y, out = torch.randn(100, device="cuda"), torch.randn(100, device="cuda"), torch.zeros(100, device="cuda")
    bounds.one_of_two[(1,)](x, y, out, 100, BLOCK, fault)
    torch.testing.assert_close(out, torch.where(torch.arange(100, device="cuda") % 2 == 0, x, y))


@planted("out-of-bounds", None, "a pointer from a table of addresses, without a mask")
def test_pointer_from_a_table(fault):
    parts = [torch.randn(100, device="cuda") for _ in range(3)]
    table, out = torch.tensor([part.data_ptr() for part in parts], device="cuda"), torch.zeros(3, 100, device="cuda")
    bounds.from_a_table[(3,)](table, out, 100, BLOCK, fault)
    torch.testing.assert_close(out, torch.stack(parts))


def described(read_rows, write_rows):
    x, out = torch.randn(10, 32, device="cuda"), torch.zeros(10, 32, device="cuda")
    bounds.described[(1,)](x, out, 10, 32, read_rows, write_rows, 16, 32)
    torch.testing.assert_close(out, x)


@planted("out-of-bounds", "x", "a descriptor with too many rows, in a load")
def test_descriptor_load(fault):
    described(12 if fault else 10, 10)


@planted("out-of-bounds", "out", "a descriptor with too many rows, in a store")
def test_descriptor_store(fault):
    described(10, 12 if fault else 10)


@planted("out-of-bounds", "source", "a descriptor from the host with too many rows")
def test_descriptor_from_the_host(fault):
    x, out = torch.randn(10, 32, device="cuda"), torch.zeros(10, 32, device="cuda")
    source = TensorDescriptor(x, [12 if fault else 10, 32], [32, 1], [16, 32])
    bounds.given_descriptor[(1,)](source, out, 10, 32, 16, 32)
    torch.testing.assert_close(out, x)


@planted("out-of-bounds", "x", "a load from an empty tensor")
def test_empty_tensor(fault):
    x, out = torch.randn(0, device="cuda"), torch.zeros(1, device="cuda")
    bounds.first[(1,)](x, out, 0, fault)
    assert out[0] == 0


@planted("out-of-bounds", "x", "an index that is one too large, in a function that the kernel calls")
def test_in_a_called_function(fault):
    x, out = vectors(128, 128)
    bounds.with_a_helper[(1,)](x, out, 128, BLOCK, fault)
    if not fault:
        torch.testing.assert_close(out, x)


@planted("out-of-bounds", "first", "a store that ends in the tensor behind")
def test_store_into_another_tensor(fault):
    x, first, second = torch.randn(100, device="cuda"), torch.zeros(BLOCK, device="cuda"), torch.zeros(BLOCK, device="cuda")
    offset = (second.data_ptr() - first.data_ptr()) // 4
    bounds.store_beside[(1,)](x, first, 100, BLOCK, offset if fault else 0)
    if not fault:
        torch.testing.assert_close(first[:100], x)


@planted("out-of-bounds", "x", "a descriptor with one column too many, which the last row does not have")
def test_descriptor_columns(fault):
    x, out = torch.randn(10, 24, device="cuda"), torch.zeros(10, 24, device="cuda")
    bounds.described_columns[(1,)](x, out, 10, 24, 25 if fault else 24, 16, 32)
    torch.testing.assert_close(out, x)


@planted("out-of-bounds", "x", "an unsigned index that is counted down past 0")
def test_count_down(fault):
    x, out = torch.ones(100, device="cuda"), torch.zeros(1, device="cuda")
    bounds.count_down[(1,)](x, out, 100, BLOCK, fault)
    assert out[0] == 100
