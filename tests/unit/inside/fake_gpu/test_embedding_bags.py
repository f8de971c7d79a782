"""What `_embedding_bag` returns on the pretended card is what a card returns."""

import pytest

torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")
from harness.inside.fake_gpu.references.embedding_bags import name_bags  # noqa: E402


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_index_has_its_bag_and_the_gradient_is_the_same(mode, dtype):
    torch.manual_seed(0)
    weight = torch.randn(50, 8, dtype=dtype)
    indices, offsets = torch.randint(0, 50, (9,)), torch.tensor([0, 4, 4])
    grad = torch.ones(3, 8, dtype=dtype)

    def gradient():
        leaf = weight.clone().requires_grad_()
        torch.nn.functional.embedding_bag(indices, leaf, offsets, mode=["sum", "mean"][mode]).backward(grad)
        return leaf.grad

    expected = gradient()
    undo = name_bags()
    try:
        _output, bags, sizes, largest = torch.ops.aten._embedding_bag(weight, indices, offsets, False, mode, False, None, False, -1)
        found = gradient()
        again = torch.ops.aten._embedding_bag_dense_backward(grad, indices, bags, sizes, largest, 50, False, mode, None, -1)
    finally:
        undo()
    assert bags.tolist() == [0, 0, 0, 0, 2, 2, 2, 2, 2]
    assert sizes.tolist() == [4, 0, 5]
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(again, expected)
    assert torch.ops.aten._embedding_bag(weight, indices, offsets, False, 0, False, None, False, -1)[1].numel() == 0  # as before
