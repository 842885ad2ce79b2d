// Package stray has no line.
package stray
