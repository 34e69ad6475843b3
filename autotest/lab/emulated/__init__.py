"""The emulated host: a QEMU machine with an IOMMU and spare PCI devices that stands for a testbed's real host.

Its guests are guests of a guest. It is there for what the namespaces of one machine cannot be: PCI devices to bind to other
drivers and to pass through, IOMMU groups, virtual functions, KVM (on the SVM that TCG emulates) and vhost.
"""
