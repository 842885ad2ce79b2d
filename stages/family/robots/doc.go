// Package robots is the families of policies: a file a family, which registers itself under lerobot's name or its
// publisher's. A policy denoises actions, so layers and keys of denoisers are its too.
package robots
