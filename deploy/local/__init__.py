"""Demo and test equipment: embedded services, the real proxy, a stand-in engine, recorded work."""
