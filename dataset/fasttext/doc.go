// Package fasttext reads classifiers that fastText has written (.bin, and quantized ones, .ftz) and scores
// texts with them, as its command predict does. A file is data alone: nothing of it is carried out.
//
// Source: arXiv:1607.01759, arXiv:1612.03651; the form of files is fastText's, version 12 and 11.
package fasttext
