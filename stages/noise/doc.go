// Package noise holds what diffusion models are trained and sampled by: noise levels, targets, weights of the
// loss and samplers, as values. Each registers itself from a file of its own.
//
// # What there is
//
//   - [Scheduler]: diffusers' FlowMatchEuler, Euler, Heun, DDIM, DDPM, DPM-Solver++ (orders 1 to 3, and the
//     stochastic form), UniPC (bh1, bh2) and EDM Euler, read from and written to scheduler_config.json.
//   - [Curve]: tables of variances: linear, scaled_linear, squaredcos_cap_v2, sigmoid, laplace, exp.
//   - [Draw]: training's noise levels: uniform, logit_normal, mode, shifted, waver, beta.
//   - [Target]: epsilon, sample, v_prediction, flow_prediction, edm, edm_v.
//   - [Weight]: none, sigma_sqrt, cosmap, min_snr, edm, bell.
//   - [Guide] and [Rescale]: guidance; [EMA]: averages of weights.
//
// Each names its paper where it is declared.
//
// # What always holds
//
//   - A [Sampler] has no state: a [State] is a plain value that can be saved between any two evaluations.
//   - Arithmetic on samples is float32, in the order of diffusers' operations.
//   - A random number depends on its [Key] alone.
//
// # Where to begin
//
// sampler.go, then ddim.go and flowmatch.go.
//
//lfvet:files a schedule, sampler or weight of the loss a file, which registers itself
package noise
