package sandbox

// EnterWith is Enter on a kernel that has only some of what is used.
func EnterWith(s Spec, have Support) error { return enter(s, have) }

// CloseWith is Seal.Close on a kernel that has only some of what is used.
func CloseWith(s Seal, have Support) error { return s.close(have) }
