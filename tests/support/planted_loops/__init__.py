"""Every loop that Lightning has, with sleeps of known size planted, and the plan of where they are to be found."""
