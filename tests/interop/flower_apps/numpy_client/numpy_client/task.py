"""A small network with normalisation, and synthetic data: two classes of points, a partition for each node."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, points):
        return self.layers(points)


def load_data(partition_id, num_partitions):
    generator = torch.Generator().manual_seed(1000 * num_partitions + partition_id)
    points = torch.randn(80 + 10 * partition_id, 6, generator=generator)
    labels = (points[:, 0] + points[:, 1] * points[:, 2] > 0).long()
    held = len(points) // 4
    train = DataLoader(TensorDataset(points[held:], labels[held:]), batch_size=16, shuffle=True)
    return train, DataLoader(TensorDataset(points[:held], labels[:held]), batch_size=64)


def train(net, loader, epochs, lr):
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    total = 0.0
    for _ in range(epochs):
        for points, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(points), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(loader))


def test(net, loader):
    net.eval()
    loss, right, count = 0.0, 0, 0
    with torch.no_grad():
        for points, labels in loader:
            answers = net(points)
            loss += nn.functional.cross_entropy(answers, labels, reduction="sum").item()
            right += (answers.argmax(1) == labels).sum().item()
            count += len(labels)
    return loss / count, right / count
