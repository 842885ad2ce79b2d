// Package family has what model families are made of; the families are files of decoders and towers, and
// package all has them all.
//
// # What it is
//
// A [Family] turns a checked configuration into a [Model], a list of named blocks joined by ports. Cutting
// a model into pipeline stages is slicing that list; a port that crosses a border becomes an edge between
// ranks. Most families are a [Spec], the description of a decoder layer by layer, and differ from Llama's
// in a few fields; a few build blocks of their own.
//
// # What a family's file states
//
//	HF       how its config.json is read and written
//	Spec     how its layers differ; kinds of mixers and MLPs register themselves by name
//	Source   where a logical parameter lies in its checkpoints, for reading and for writing
//	Loong    LoongForge's classes and names of it
//
// Nothing else of lfactor knows a family's name: one test loops over the registry and holds each family to
// goldens from transformers (logits, loss, every gradient, a short curve), to published parameter counts
// and to round trips of checkpoints.
//
// # How models with vision are made
//
// A tower (towers register by kind) and a decoder are composed by vlm.go. A [Modality] gives a microbatch
// its class of shape and the tensors that its blocks read.
//
// # What always holds
//
//   - Initial weights are a function of seed, parameter name and element, whatever the plan (init.go).
//   - A parameter is a region of one logical tensor ([Region], weights.go), so that any plan loads what
//     any other saved.
//
// # Where to begin
//
// decoders/llama.go and decoders/qwen2.go are whole families; spec.go and model.go are what they rest on.
// CONTRIBUTING.md adds one step by step.
//
//lfvet:files a matter that families share a file
package family
