// Package latent has the autoencoders of diffusion models, which make latents of pixels and pixels of latents:
// diffusers' AutoencoderKL (Stable Diffusion, SDXL, Flux), AutoencoderKLWan (Wan 2.1 and
// 2.2) and AutoencoderKLQwenImage.
//
// # What it is
//
// A [Config] is the contents of a config.json of diffusers; its [Model] records the encoder and the decoder
// on a tape, as a whole or as a list of [Block]s that a pipeline may be cut between. Parameters have
// diffusers' names. [Open] reads a folder with weights, and an [Autoencoder] runs it on one backend without
// actors. [Model.Loss] is what an autoencoder is trained by.
//
// # Letters
//
// On the tape channels are last, as in all of this project: pixels [n h w c] or [n t h w c], latents [n (t)
// h w z], moments [n (t) h w 2z], of which the mean comes first. Tensors that an Autoencoder takes and gives
// have diffusers' order: [n c h w], [n c t h w]. Pixels lie between -1 and 1.
//
// # What always holds
//
//   - Every key of a file acts or is refused, by file, line and key.
//   - A clip has 1 + k·m frames, where a frame of latents stands for the first frame of pixels, or for k of
//     those behind it. No frame depends on later ones, so a clip may be taken in chunks that hand their last
//     frames on, with the same numbers and memory for one chunk (frames.go).
//   - The bits of results do not depend on threads.
//
// # Where to begin
//
// model.go, then kl.go with kl_blocks.go, or wan.go with wan_blocks.go.
package latent
