// Package towers has vision towers, and the families that have one: one file each, which registers itself.
package towers
