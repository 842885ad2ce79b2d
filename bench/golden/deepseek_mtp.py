"""Golden data of DeepSeek V3 with the layer that predicts a further token: actors/host/testdata/deepseek-v3-mtp/ as family_golden.py writes it.

transformers has the layer's parts and no loss of it; they are put together here as in arXiv:2412.19437 section 2.2 and the published checkpoint: the
layer's input joins the normed embedding of the next token and the normed last hidden state, behind the model's final norm.

Run from the repository's root: python bench/golden/deepseek_mtp.py
"""

import pathlib

import torch
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3DecoderLayer, DeepseekV3RMSNorm

import family_golden as base
import family_layers


class Case(family_layers.Case):
    def __init__(self):
        make = family_layers.make

        def with_layer(name):
            config, model = make("deepseek-v3")
            layer = DeepseekV3DecoderLayer(config, config.num_hidden_layers)
            h = config.hidden_size
            for part in ("enorm", "hnorm"):
                setattr(layer, part, DeepseekV3RMSNorm(h, config.rms_norm_eps))
            layer.eh_proj = torch.nn.Linear(2 * h, h, bias=False)
            layer.shared_head = torch.nn.Module()
            layer.shared_head.norm = DeepseekV3RMSNorm(h, config.rms_norm_eps)
            model.model.layers.append(layer)
            return config, model

        family_layers.make = with_layer
        super().__init__("deepseek-v3-mtp")
        family_layers.make = make
        self.path, self.mtp = pathlib.Path("actors/host/testdata/deepseek-v3-mtp"), True
        document = torch.zeros_like(self.ids)
        for b, lengths in enumerate(base.DOCUMENTS):
            at = 0
            for d, n in enumerate(lengths):
                document[b, at:at + n], at = d, at + n
        self.next_ids = base.shift(self.ids, document, 1).clamp(min=0)
        self.mtp_targets = base.shift(self.ids, document, 2)
        self.tensors |= dict(next_ids=self.next_ids.int(), mtp_targets=self.mtp_targets.int())

    def logits(self, dtype=torch.float32):
        m, mask = self.model.model, self.mask.to(dtype)
        hidden = m(input_ids=self.ids, position_ids=self.positions, attention_mask=mask, use_cache=False).last_hidden_state
        layer = m.layers[-1]
        x = layer.eh_proj(torch.cat([layer.enorm(m.embed_tokens(self.next_ids)), layer.hnorm(hidden)], -1))
        turns = m.rotary_emb(x, position_ids=self.positions)
        x = layer(x, attention_mask=mask, position_ids=self.positions, position_embeddings=turns)
        return [self.model.lm_head(hidden), self.model.lm_head(layer.shared_head.norm(x))]


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    Case().write(True)


if __name__ == "__main__":
    main()
