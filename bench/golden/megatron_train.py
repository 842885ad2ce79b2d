"""Golden data of training that goes on: Megatron's own library trains a GPTModel on one rank, saves it with its optimizer, and goes on.

  python bench/golden/megatron_train.py                  writes to stages/checkpoint/torch/testdata, for dense (qwen3) and experts (qwen3_moe):
    megatron-train-KIND/FORM/       what was saved behind 3 steps, FORM being
        model       torch_dist, an optimizer that is not distributed (optimizer.state.exp_avg.KEY …)
        reshard     torch_dist, Megatron's distributed optimizer, fully_reshardable
        buckets     torch_dist, the same, dp_reshardable: flat buckets of gradients (dense alone)
        ranks       the older form: mp_rank_00/model_optim_rng.pt with the optimizer in it
        distrib     the same with Megatron's distributed optimizer, whose state is in mp_rank_00/distrib_optim.pt
    megatron-train-KIND/facts.json  tokens, settings, losses of the 3 steps and of the 3 behind them
    megatron-train-KIND/config.json
    megatron-train-grid/{buckets,reshard}   of tp 2 · pp 2, behind two updates by gradients that are random numbers
    megatron-train-tied/{buckets,model}     of pp 2 · vp 2 · dp 2, with one matrix for embedding and head; model is of one rank, whose optimizer is not
                                            distributed: fully_reshardable leaves the padding between buckets out on one side alone, and is wrong here
    megatron-train-types/{reshard,distrib,listed}  of experts on one rank in bfloat16, norms in float32; listed is distrib in the form of
                                            before 2024, bucket by bucket, cut here as _update_legacy_world_tensors puts it together
  python bench/golden/megatron_train.py grids [NAMES]    writes these three alone
  python bench/golden/megatron_train.py read KIND DIR [FORM]    goes on from DIR, a directory of torch_dist with moments that lfactor wrote, and
                                                         compares the losses with facts.json

Run from the repository's root, with what bench/golden/megatron_files.py needs.
"""

import json
import os
import pathlib
import shutil
import sys
import zlib

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import megatron_files as files  # noqa: E402

def on_host(make):
    """What makes a tensor on a GPU makes it on the host."""
    def made(*a, **k):
        return make(*a, **{**k, **({"device": "cpu"} if str(k.get("device", "")).startswith("cuda") else {})})
    return made


for name in ("tensor", "zeros", "empty", "ones", "full", "arange"):
    setattr(torch, name, on_host(getattr(torch, name)))
kind_of = torch.Tensor.type
torch.Tensor.type = lambda x, *a, **k: kind_of(x, *a, **k) if a or k else kind_of(x).replace("torch.", "torch.cuda.", 1)
torch.Tensor.cuda = lambda x, *a, **k: x
OUT = files.OUT
STEPS, LR, DECAY, BETAS, EPS = 3, 1e-2, 0.1, (0.9, 0.95), 1e-8
IDS = [(7 * i * i + 3 * i) % files.VOCAB for i in range(12)] + [0]  # the first again, so that text can repeat it


def optimizer(model, distributed, bf16=False):
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    import megatron.core.optimizer.clip_grads as clip
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    torch.cuda.Event = lambda *a, **k: None
    models = model if isinstance(model, list) else [model]
    how = DistributedDataParallelConfig(use_distributed_optimizer=distributed, grad_reduce_in_fp32=True)
    ddps = [DistributedDataParallel(m.config, how, m, disable_bucketing=i > 0) for i, m in enumerate(models)]
    config = OptimizerConfig(optimizer="adam", lr=LR, min_lr=LR, weight_decay=DECAY, adam_beta1=BETAS[0], adam_beta2=BETAS[1], adam_eps=EPS,
                             clip_grad=0.0, use_distributed_optimizer=distributed, bf16=bf16, fp16=False)
    opt = get_megatron_optimizer(config, ddps)
    for group in opt.param_groups:
        group["lr"], group["weight_decay"] = LR, DECAY * group.get("wd_mult", 1.0)
    return ddps if isinstance(model, list) else ddps[0], opt


def step(ddp, opt, kind):
    ddp.zero_grad_buffer()
    opt.zero_grad()
    n = len(IDS) - 1
    mask = torch.triu(torch.ones(1, 1, n, n), 1).bool()
    ids = torch.tensor(IDS)[None]
    logits = ddp(ids[:, :-1], torch.arange(n)[None], mask)[..., :files.VOCAB]
    loss = torch.nn.functional.cross_entropy(logits[0].float(), ids[0, 1:])
    loss.backward()
    ddp.finish_grad_sync()
    ok, _, _ = opt.step()
    assert ok
    return loss.item()


def state(ddp, opt, form, loading):
    model = ddp.module.sharded_state_dict(prefix="")
    metadata = {"chained_optim_avoid_prefix": True}
    if form == "reshard":
        metadata["distrib_optim_sharding_type"] = "fully_reshardable"
        metadata["distrib_optim_fully_reshardable_mem_efficient"] = True
    if form == "buckets":
        metadata["distrib_optim_sharding_type"] = "dp_reshardable"
    return {**model, "optimizer": opt.sharded_state_dict(model, is_loading=loading, metadata=metadata)}


def train(rank, kind, form, out, port):
    from megatron.core import dist_checkpointing as dc
    files.begin(0, 1, port)
    model = files.build(kind, 1, 1, files.VOCAB)
    ddp, opt = optimizer(model, form in ("reshard", "buckets", "distrib"))
    gen = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            p.copy_(torch.randn(p.shape, generator=gen) * 0.2 + (1 if "norm" in name else 0))
    if hasattr(opt, "reload_model_params"):
        opt.reload_model_params()
    losses = [step(ddp, opt, kind) for _ in range(STEPS)]
    path = pathlib.Path(out) / form
    path.mkdir(parents=True)
    if form in ("ranks", "distrib"):
        import argparse
        (path / "mp_rank_00").mkdir()
        sd = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in model.state_dict().items()}
        torch.save({"args": argparse.Namespace(num_layers=files.LAYERS, consumed_train_samples=STEPS), "checkpoint_version": 3.0,
                    "iteration": STEPS, "model": sd, "optimizer": opt.state_dict()}, path / "mp_rank_00" / "model_optim_rng.pt")
        if form == "distrib":
            opt.save_parameter_state(str(path / "mp_rank_00" / "distrib_optim.pt"))
    else:
        dc.save({**state(ddp, opt, form, False), "iteration": STEPS, "checkpoint_version": 3.0}, str(path))
    losses += [step(ddp, opt, kind) for _ in range(STEPS)]
    facts = {"ids": IDS, "steps": STEPS, "lr": LR, "weight_decay": DECAY, "betas": BETAS, "eps": EPS, "losses": losses}
    file = pathlib.Path(out) / "facts.json"
    if file.exists():
        before = json.loads(file.read_text())["losses"]
        assert max(abs(a - b) for a, b in zip(before, losses)) < 1e-6, (form, before, losses)
    else:
        file.write_text(json.dumps(facts, indent=1) + "\n")
    print(kind, form, losses)
    dist.destroy_process_group()


def seeded(name, p, grown):
    """Random numbers by the name of a parameter, and by its rank of tensor parallelism where ranks have parts."""
    from megatron.core import parallel_state as ps
    part = ps.get_tensor_model_parallel_rank() if getattr(p, "tensor_model_parallel", False) else 0
    gen = torch.Generator().manual_seed(zlib.crc32(f"{name} {part} {grown}".encode()))
    return torch.randn(p.shape, generator=gen)


def whole_name(model, name):
    """A parameter's name with the number that its layer has in the whole model."""
    if name == "output_layer.weight" and model.share_embeddings_and_output_weights:
        return "embedding.word_embeddings.weight"
    if not name.startswith("decoder.layers."):
        return name
    head, n, rest = name[:15], *name[15:].split(".", 1)
    return f"{head}{model.decoder.layers[int(n)].layer_number - 1}.{rest}"


def grid(rank, out, tp, pp, vp, dp, forms, port):
    """A model of several ranks, changed twice by random gradients, and saved."""
    from megatron.core import dist_checkpointing as dc, parallel_state as ps
    files.LAYERS = 4 if out.endswith("tied") else 2
    files.begin(rank, tp * pp * dp, port)
    kind, types = ("experts", True) if out.endswith("types") else ("dense", False)
    models = [files.build(kind, tp, pp, files.VOCAB, vp, i if vp else None, out.endswith("tied")) for i in range(vp or 1)]
    for m in models:
        for name, p in m.named_parameters():
            p.data.copy_(seeded(whole_name(m, name), p, "weight") * 0.2 + (1 if "norm" in name else 0))
            if types and "norm" not in name:  # a group of parameters has to be of one type, or it takes others' state
                p.data = p.data.bfloat16()
    ddps, opt = optimizer(models, forms != ["model"], types)
    if forms != ["model"]:
        opt.reload_model_params()
    for n in range(2):
        for ddp in ddps:
            ddp.zero_grad_buffer()
            for name, p in ddp.module.named_parameters():
                p.main_grad.copy_(seeded(whole_name(ddp.module, name), p, n))
        ok, _, _ = opt.step()
        assert ok

    def whole(form):
        sd = {}
        for i, m in enumerate(models):
            sd["model" if vp is None else f"model{i}"] = m.sharded_state_dict(prefix="")
        metadata = {"chained_optim_avoid_prefix": True, "distrib_optim_sharding_type": form}
        if form == "fully_reshardable":
            metadata["distrib_optim_fully_reshardable_mem_efficient"] = True
        if vp is None:
            return {**sd["model"], "optimizer": opt.sharded_state_dict(sd["model"], metadata=metadata), "iteration": 2}
        return {**sd, "optimizer": opt.sharded_state_dict(sd, metadata=metadata), "iteration": 2}
    for name in forms:
        form = {"reshard": "fully_reshardable", "buckets": "dp_reshardable"}.get(name)
        path = pathlib.Path(out) / name
        if rank == 0:
            path.mkdir(parents=True)
        dist.barrier()
        dc.save(whole(form), str(path))
    if types:
        listed(models[0], opt, pathlib.Path(out))
    dist.destroy_process_group()


def listed(model, opt, out):
    import argparse
    for form in ("distrib", "listed"):
        path = out / form / "mp_rank_00"
        path.mkdir(parents=True)
        sd = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in model.state_dict().items()}
        torch.save({"args": argparse.Namespace(num_layers=files.LAYERS), "checkpoint_version": 3.0, "iteration": 2, "model": sd,
                    "optimizer": opt.state_dict()}, path / "model_optim_rng.pt")
        opt.save_parameter_state(str(path / "distrib_optim.pt"))
        if form == "listed":
            states = torch.load(path / "distrib_optim.pt", weights_only=False)
            for state in states if isinstance(states, list) else [states]:
                del state["buckets_coalesced"]
                for n, types in state.items():
                    starts = sorted(at for at, _, _ in opt.chained_optimizers[0].buffers[n].param_index_map.values())
                    for key, kinds in list(types.items()):  # two buckets, the first filled up to a multiple of 128 more
                        types[key] = {k: [torch.nn.functional.pad(v[:starts[4]], (0, 128)), v[starts[4]:].clone()]
                                      for k, v in kinds.items() if k != "numel_unpadded"}
            torch.save(states, path / "distrib_optim.pt")


def grids(*names):
    for name in names or ("grid", "tied", "types"):
        out = OUT / f"megatron-train-{name}"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        config = json.loads((OUT / f"megatron-{'experts' if name == 'types' else 'dense'}-hf" / "config.json").read_text())
        config.update(num_hidden_layers=4 if name == "tied" else 2, tie_word_embeddings=name == "tied")
        (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        for i, (tp, pp, vp, dp, forms) in enumerate({"grid": [(2, 2, None, 1, ["reshard", "buckets"])], "types": [(1, 1, None, 1, ["reshard"])],
                                                     "tied": [(1, 2, 2, 2, ["buckets"]), (1, 1, None, 1, ["model"])]}[name]):
            mp.spawn(grid, (str(out), tp, pp, vp, dp, forms, 29980 + i), nprocs=tp * pp * dp)


def read(rank, kind, path, form):
    from megatron.core import dist_checkpointing as dc
    files.begin(0, 1, 29971)
    model = files.build(kind, 1, 1, 128 * -(-files.VOCAB // 128))
    ddp, opt = optimizer(model, form == "reshard")
    if form == "reshard":  # it has no state to be filled before a step
        step(ddp, opt, kind)
    loaded = dc.load(state(ddp, opt, form, True), path)
    opt.load_state_dict(loaded.pop("optimizer"))
    for key in ("checkpoint_version", "iteration"):
        loaded.pop(key, None)
    model.load_state_dict(loaded, strict=True)
    for group in opt.param_groups:
        group["lr"], group["weight_decay"] = LR, DECAY * group.get("wd_mult", 1.0)
    want = json.loads((OUT / f"megatron-train-{kind}" / "facts.json").read_text())["losses"][STEPS:]
    got = [step(ddp, opt, kind) for _ in want]
    print("losses", got, "differ by at most", max(abs(a - b) for a, b in zip(got, want)))
    assert max(abs(a - b) for a, b in zip(got, want)) < 1e-5
    dist.destroy_process_group()


def main():
    if sys.argv[1:2] == ["grids"]:
        return grids(*sys.argv[2:])
    if len(sys.argv) > 3:
        mp.spawn(read, (sys.argv[2], sys.argv[3], (sys.argv[4:] or ["model"])[0]), nprocs=1)
        return
    port = 29950
    for kind, forms in {"dense": ["model", "reshard", "buckets", "ranks", "distrib"], "experts": ["model", "ranks", "distrib"]}.items():
        out = OUT / f"megatron-train-{kind}"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        shutil.copy(OUT / f"megatron-{kind}-hf" / "config.json", out / "config.json")
        for form in forms:
            port += 1
            mp.spawn(train, (kind, form, str(out), port), nprocs=1)
    grids()


if __name__ == "__main__":
    main()
