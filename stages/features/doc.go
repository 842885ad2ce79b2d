// Package features holds frozen networks that describe images by numbers: the statistics of drawn pictures compare
// these in the place of pixels, and so does the perceptual part of an autoencoder's loss. A network is one file that
// registers a class; which class the weights of a folder are of, the names of their tensors say.
package features
