//go:build !race

package cpu

const raced = false
