"""Golden data of stages/checkpoint/torch: what DeepSpeed writes under ZeRO 1, 2 and 3, and its universal form of that.

  python bench/golden/deepspeed_files.py        writes to stages/checkpoint/torch/testdata/deepspeed-zero{1,2,3} and deepspeed-universal:
    a tiny Qwen3 whose config.json and weights, as transformers has them behind two steps of AdamW, are in deepspeed-hf; two processes

Run from the repository's root with torch, transformers, safetensors and deepspeed installed; no GPU is needed.
"""

import json
import os
import pathlib
import shutil
import sys

os.environ["DS_ACCELERATOR"] = "cpu"
os.environ["DS_SKIP_CUDA_CHECK"] = "1"
import torch  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

OUT = pathlib.Path("stages/checkpoint/torch/testdata")
CONFIG = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": 21, "hidden_size": 16, "intermediate_size": 24,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64,
          "rms_norm_eps": 1e-5, "rope_theta": 1e6, "tie_word_embeddings": False, "hidden_act": "silu"}


def work(rank, stage, out, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_SIZE="2")
    import deepspeed
    import torch.distributed as dist
    from transformers import AutoConfig, AutoModelForCausalLM
    dist.init_process_group("gloo", rank=rank, world_size=2)
    deepspeed.init_distributed("gloo", dist_init_required=False)
    torch.manual_seed(3)
    config = AutoConfig.for_model(**CONFIG)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() == 1]
    opt = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=1e-2)
    engine, *_ = deepspeed.initialize(model=model, optimizer=opt, config={
        "train_batch_size": 2, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False, "bf16": {"enabled": stage == 1}, "torch_autocast": {"enabled": False}})
    ids = torch.tensor([[1, 5, 9, 2, 7, 3]])
    for _ in range(2):
        loss = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        engine.step()
    engine.save_checkpoint(out, tag="global_step2")
    dist.destroy_process_group()


def main():
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    from safetensors.torch import save_file
    hf = OUT / "deepspeed-hf"
    shutil.rmtree(hf, ignore_errors=True)
    hf.mkdir()
    (hf / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")
    for stage in (1, 2, 3):
        out = OUT / f"deepspeed-zero{stage}"
        shutil.rmtree(out, ignore_errors=True)
        mp.spawn(work, (stage, str(out), 29980 + stage), nprocs=2)
        for x in out.glob("*.py"):
            x.unlink()
        sd = get_fp32_state_dict_from_zero_checkpoint(str(out))
        save_file({k: v.clone().contiguous() for k, v in sd.items()}, hf / f"zero{stage}.safetensors", metadata={"format": "pt"})
    out = OUT / "deepspeed-universal"
    shutil.rmtree(out, ignore_errors=True)
    os.system(f"{sys.executable} -m deepspeed.checkpoint.ds_to_universal --input_folder {OUT}/deepspeed-zero2/global_step2 "
              f"--output_folder {out}/global_step2_universal --num_extract_workers 1 --num_merge_workers 1 --inject_missing_state")


if __name__ == "__main__":
    main()
