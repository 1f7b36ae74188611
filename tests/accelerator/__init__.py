"""A stand-in for accelerators, as the device `standin` of torch.

It is a backend of the key `PrivateUse1` over main memory, in C++: two devices with a caching allocator and its
statistics, generators, events, and streams whose work is done late, by threads of their own. No work starts before
somebody waits for it, and time on the device is counted, so that nothing depends on the clock.
"""
