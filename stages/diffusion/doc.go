// Package diffusion is the room of models that draw: how pictures and captions become latents and states, how a
// trained model draws, and its files as diffusers keeps them.
package diffusion
