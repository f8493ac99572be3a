package store

import "time"

// Role is what a person is to the box.
type Role string

// The roles.
const (
	RoleAdmin  Role = "admin"
	RoleMember Role = "member"
	RoleGuest  Role = "guest"
)

// Person is somebody who may use the box. Names are unique without regard to case.
type Person struct {
	ID       string
	Name     string // 1 to 64 bytes
	Role     Role
	Created  time.Time
	Expires  time.Time // zero: never
	Disabled bool
}

// Active tells whether the person may do anything at a moment.
func (p Person) Active(now time.Time) bool {
	return !p.Disabled && (p.Expires.IsZero() || now.Before(p.Expires))
}
