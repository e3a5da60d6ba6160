"""`muster local`: embedded mode. Pods and operator run as processes of this machine, without Kubernetes."""
