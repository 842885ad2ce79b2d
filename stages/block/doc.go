// Package block holds the layers from which families are built, forward only and written for one device.
//
// # What it is
//
// A [Layer] is a list of branches, a mixer of tokens ([Attn], [Latent], [Delta]) and an MLP ([Gated],
// [Plain], [Experts]), each with a norm before and one after where the family has them. A [Tower] is the
// same for vision. Parameter names are Hugging Face's for Llama-like models; what a family calls them in
// its files is package family's business.
//
// # How it is used
//
// package family describes each layer as a value of these types. actors/layout records them on a tape
// (kernels/grad), which brings gradients and parallelism: a block asks for changes of placement by what it
// means (Tape.Heads, Tape.WholeWidth, Tape.Tokens) and names no rank, group or collective.
//
// # What always holds
//
//   - A block draws no random numbers but through the tape, keyed by the sample, so that dropout does not
//     depend on the plan.
//   - [Lora] additions go to the linear layers that it names, in every block alike.
//
// # Letters
//
// Shapes in comments use these: rows are the tokens of a microbatch on one rank, all sequences one behind the other;
// D is the width of the residual stream; H and KV are heads of queries and of keys and values, and d is the width of
// one; F is the inner width of an MLP; V is the vocabulary; E is the number of experts, and k of them take a token.
// A local size, what one rank has of a sharded axis, has the same letter: block code is written for one device.
//
//	x [rows D]   residual stream        q [rows H d]   k, v [rows KV d]
//	gate, up [rows F]                   logits [rows V]
//	router [rows E]                     weights, experts of a token [rows k]
//
// # Where to begin
//
// layer.go, then mlp.go as the shortest part and attention.go as the usual one. Tests compare with tensors of PyTorch.
package block
