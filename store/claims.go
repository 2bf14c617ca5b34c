package store

import "slices"

// ACLs returns the record of the ACLs that a mirror added.
func (s *Store) ACLs(mirror string) (ACLs, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.acls[mirror]; a != nil {
		return ACLs{a.Mirror, slices.Clone(a.Added)}, true
	}
	return ACLs{}, false
}

// Claim returns which mirror may write a topic.
func (s *Store) Claim(topic string) (Claim, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[topic]; c != nil {
		return *c, true
	}
	return Claim{}, false
}
