// Package decoders has the families of decoders: one file each, which registers itself.
package decoders
