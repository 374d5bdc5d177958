import numpy as np
import pytest
import torch

from eris.audit.reconstruction import Handling, LocalSteps, UpdateObservation
from eris.audit.reconstruction.matching import Matching, OneStepMatching
from eris.audit.reconstruction.public_model import PublicModel
from eris.audit.reconstruction.small_networks import SigmoidPerceptron

LABELS = torch.tensor([2, 7])


@pytest.fixture(scope="module")
def attacked():
    torch.manual_seed(2)
    module = SigmoidPerceptron(inputs=64)
    vector = np.concatenate([weight.detach().numpy().ravel() for weight in module.parameters()])
    public = PublicModel(module, vector, shape=(1, 8, 8), classes=10, mean=(0.1,), std=(0.3,))
    update = public.update(torch.rand(2, 1, 8, 8, dtype=torch.float64), LABELS).detach().numpy().astype(np.float32)
    return public, vector, update


@pytest.mark.parametrize("handling", [Handling(), Handling(clip=0.1), Handling(sample_clip=0.1)])
@pytest.mark.parametrize("mode", ["mask-aware", "zero-filled"])
@pytest.mark.parametrize("local", [{"lr": 1.0}, {"lr": 0.1}, {"lr": 0.1, "steps": 2}])
@pytest.mark.parametrize("every", [1, 3])
def test_it_measures_what_the_general_matching_measures(attacked, handling, mode, local, every):
    public, vector, update = attacked
    seen, local = np.arange(0, update.size, every), LocalSteps(**local, samples=2, batch=2)
    look = UpdateObservation(vector, seen, np.float32(local.lr) * update[seen], local, handling)
    fast, slow = OneStepMatching(look, public, mode=mode), Matching(look, public, mode=mode)
    torch.manual_seed(5)
    candidates = torch.rand(3, 2, 1, 8, 8, dtype=torch.float64)
    expected = [slow.loss(pictures, LABELS).item() for pictures in candidates]
    assert [fast.loss(pictures, LABELS).item() for pictures in candidates] == pytest.approx(expected, rel=1e-9)
    assert fast.losses(candidates, LABELS) == pytest.approx(expected, rel=1e-9)
    pictures = candidates[0].requires_grad_()
    slopes = [torch.autograd.grad(matching.loss(pictures, LABELS), pictures)[0] for matching in (fast, slow)]
    assert torch.allclose(*slopes, rtol=1e-9, atol=1e-12)
