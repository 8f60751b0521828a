"""A small text to train on: rows of tokens that repeat in a pattern, so that there is something to learn."""
import torch

VOCAB = 128


class Text(torch.utils.data.Dataset):
    """Rows of tokens. unequal: only the first few labels of a row count, another number in each."""

    def __init__(self, rows=64, length=32, unequal=False):
        draw = torch.Generator().manual_seed(3)
        start = torch.randint(0, VOCAB, (rows, 1), generator=draw)
        stride = torch.randint(1, 4, (rows, 1), generator=draw)
        self.tokens = (start + torch.arange(length) * stride) % VOCAB
        self.kept = torch.randint(2, length, (rows,), generator=draw) if unequal else torch.full((rows,), length)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        labels = self.tokens[i].clone()
        labels[self.kept[i] :] = -100
        return {"input_ids": self.tokens[i], "labels": labels, "attention_mask": torch.ones_like(labels)}
