//go:build !race

package media

const raced = false
