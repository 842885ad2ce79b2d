// Package texts holds the text encoders of diffusion models: what makes states of a caption's tokens that a
// denoiser attends to.
//
// # What there is
//
//   - [Class]: transformers' CLIPTextModel, CLIPTextModelWithProjection, T5EncoderModel and
//     UMT5EncoderModel, read from and written to their config.json. Each registers itself from a file of
//     its own, with the numbers of parameters of its published sizes.
//   - [Model]: an encoder as a list of named blocks, which a larger model may have among its own.
//   - [Encoder]: a folder as diffusers keeps it (text_encoder), run alone on one backend.
//   - [Tokenizer]: the folder beside it (tokenizer), and how a caption becomes tokens of it.
//   - [Use]: which states a pipeline of diffusers takes, how long captions are and what becomes of the rest.
//   - [Template]: a decoder of package family as a text encoder, as Qwen-Image has Qwen2.5-VL.
//
// # Letters
//
// Rows are the tokens of all captions of a microbatch, one caption behind the other, cut by cu_seqlens; W is
// the width of the encoder.
//
//	ids, positions [rows] i32           x, states [rows W]
//	pool [captions] i32, rows of states pooled [captions W], or the width of the projection
//
// # What always holds
//
//   - Parameters have the names that transformers gives them in published files.
//   - A caption's states are the same bits whichever captions are encoded with it ([Encoder.Encode]).
//   - A key of config.json acts, or is refused by file, line and key; those that transformers writes and
//     that change nothing here are listed (idle, [Class].Idle).
//
// # Where to begin
//
// clip.go is a whole class; model.go makes blocks of it.
package texts
