package media

import "strings"

// imageSuffixes are the endings of names of files with images.
var imageSuffixes = []string{".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".heic",
	".jp2", ".j2k"}

// IsImage says whether a file's name, or what follows a dot in it, is one of an image.
func IsImage(name string) bool {
	name = strings.ToLower("." + name)
	for _, s := range imageSuffixes {
		if strings.HasSuffix(name, s) {
			return true
		}
	}
	return false
}

// Suffix is how the name of a file with an image ends, without the dot, by the file's first bytes;
// "" where it is none that is known.
func Suffix(b []byte) string {
	for _, c := range containers {
		if !c.is(b) {
			continue
		}
		switch c.name {
		case "JPEG":
			return "jpg"
		case "AVIF or HEIC":
			if strings.HasPrefix(string(b[8:12]), "avi") {
				return "avif"
			}
			return "heic"
		case "JPEG 2000":
			return "jp2"
		}
		return strings.ToLower(c.name)
	}
	return ""
}
