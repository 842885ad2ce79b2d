package words

import "unicode"

// cased is Unicode's property of the name: letters that have a case.
func cased(r rune) bool {
	return unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r) ||
		unicode.In(r, unicode.Other_Lowercase, unicode.Other_Uppercase)
}

// caseIgnorable is Unicode's property of the name, which looks past a character when it asks for the case
// of its neighbours.
func caseIgnorable(r rune) bool {
	switch r {
	case '\'', '.', ':', '·', '‘', '’', '․', '‧', '\u0387', '\u055f', '\u05f4', '\ufe13', '\ufe52', '\ufe55', '\uff07',
		'\uff0e', '\uff1a':
		return true
	}
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk)
}
