//go:build race

package media

const raced = true
