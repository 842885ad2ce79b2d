"""Print, as a line of JSON each, the keys of transformers' generation_config.json with a value, and whether answers of a small model move with it,
for `go test ./stages/trained -run TestGenerationKeys -long`.

Run: python bench/golden/generation_keys.py. Needs torch and transformers (made with 5.24).
"""
import copy
import json
import tempfile
import warnings

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, logging

BASE = dict(do_sample=True, temperature=0.7, top_p=0.9, top_k=20, eos_token_id=[60], pad_token_id=0, bos_token_id=1, max_new_tokens=20)
VALUES = dict(temperature=[0.3, 1.5], top_p=[0.5, 1.0], top_k=[3, 0], min_p=[0.3], repetition_penalty=[1.8], eos_token_id=[7, [7, 8, 9], None], do_sample=[False],
              max_length=[6], max_new_tokens=[3], min_length=[20], min_new_tokens=[19], early_stopping=[True], max_time=[1e-9], num_beams=[2], use_mtp=[True], use_cache=[False],
              cache_implementation=["static"], max_cache_len=[64], top_h=[0.3], typical_p=[0.3], epsilon_cutoff=[0.05], eta_cutoff=[0.05], encoder_repetition_penalty=[1.5],
              length_penalty=[2.0], no_repeat_ngram_size=[1], bad_words_ids=[[[3], [4]]], renormalize_logits=[True], forced_bos_token_id=[9], forced_eos_token_id=[9],
              remove_invalid_values=[True], exponential_decay_length_penalty=[[2, 1.5]], suppress_tokens=[list(range(30))], begin_suppress_tokens=[list(range(30))],
              sequence_bias=[[[[3], 9.0]]], token_healing=[True], guidance_scale=[2.0], num_return_sequences=[2], output_attentions=[True], output_hidden_states=[True],
              output_scores=[True], output_logits=[True], return_dict_in_generate=[True], pad_token_id=[5], bos_token_id=[5], encoder_no_repeat_ngram_size=[2],
              decoder_start_token_id=[5], is_assistant=[True], num_assistant_tokens=[3], assistant_confidence_threshold=[0.9],
              prompt_lookup_num_tokens=[3], max_matching_ngram_size=[2], assistant_early_exit=[1], stop_strings=[["a"]], low_memory=[True], penalty_alpha=[0.6], dola_layers=["low"],
              diversity_penalty=[0.5], num_beam_groups=[2], constraints=[[1]], force_words_ids=[[[3]]], prefill_chunk_size=[2], disable_compile=[True],
              transformers_version=["4.0.0"], _from_model_config=[True], chat_format=["chatml"], watermarking_config=[{"bias": 5.0}])


def answers(model, config):
    with tempfile.TemporaryDirectory() as d, open(d + "/generation_config.json", "w") as f:
        json.dump(config, f)
        f.flush()
        model.generation_config = GenerationConfig.from_pretrained(d)
    out = []
    for seed in range(2):
        torch.manual_seed(seed)
        got = model.generate(torch.tensor([[1, 3, 4, 3, 4]]), attention_mask=torch.ones(1, 5, dtype=torch.long))
        out.append(getattr(got, "sequences", got).tolist())
    return out


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, vocab_size=64, initializer_range=0.5)).eval()
    base = answers(model, BASE)
    assert base == answers(model, BASE)
    print(json.dumps({"keys": sorted(GenerationConfig().to_dict())}))
    for key, values in VALUES.items():
        for v in values:
            one = {"key": key, "value": v, "base": copy.deepcopy(BASE)}
            try:
                one["moved"] = answers(model, BASE | {key: v}) != base
            except Exception as e:  # whatever the library raises
                one["moved"], one["error"] = True, f"{type(e).__name__}: {e}"[:200]
            print(json.dumps(one), flush=True)


main()
