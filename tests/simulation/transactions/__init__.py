"""Both coordinators in one cluster: transactional producers, their coordinators, and markers between pods."""
